"""The simulator: replays a trace through the production scheduler under a virtual clock, and measures the result."""
