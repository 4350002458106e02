"""The programs that the public interface promises, as users write them."""
