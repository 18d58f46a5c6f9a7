"""What the tests of all folders share: waiting for conditions, faults on processes, workloads and their checkers."""
