"""An application at work: threads, tasks, state on disk, restoration, and the clients that all of it needs."""
