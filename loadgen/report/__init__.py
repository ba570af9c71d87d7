"""One self-contained page of measurements: `loadgen.report.page.page`."""
