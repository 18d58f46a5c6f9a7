"""Runtime of an application: threads, tasks, state on disk, restoration, and the clients that they need."""
