"""Spouts and bolts for other systems, one room per system; here is what several of them share."""
