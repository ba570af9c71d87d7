"""What interrupts the users' code when it runs for too long (`dyorc.engine.seam.StepMonitor`)."""


class StepInterrupted(BaseException):
    """Raised inside a step that takes too long. No `Exception`, so that workflows do not catch it by accident."""
