"""What is served: models as plain values, the workflows behind them, a submitted request, and what their programs are doing."""
