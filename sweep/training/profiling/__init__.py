"""What holds a training back: what is seen of it from outside, and what that means."""
