"""The components that users write, the objects that their code gets, and the reports of a running topology."""
