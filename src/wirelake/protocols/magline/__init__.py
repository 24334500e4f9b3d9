"""magline: requests, answers and pushes over a sealed connection that can be resumed."""
