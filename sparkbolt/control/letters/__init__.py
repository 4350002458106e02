"""Letters: stores of dead letters, in which an operator searches, replays and discards letters."""
