"""What there is: requests, tasks, journals, calls, cells. Data and walks over it; nothing here decides."""
