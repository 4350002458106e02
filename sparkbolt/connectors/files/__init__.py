"""Files: spouts that read and follow them, bolts that write them, and files of dead letters."""
