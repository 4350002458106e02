"""What users write, the objects that their code gets, and what a running topology reports to them."""
