"""Who leads a group of orchestrators: a lease with a fence in the store. Decision 0042 says what that promises."""
