"""Plans on real ranks: step time of each planner's plan, predicted and measured, with one rank slower than the other."""
