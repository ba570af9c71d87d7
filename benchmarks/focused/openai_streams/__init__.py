"""What OpenAI's form of a stream costs, compared with the native forms of the same workflow's parts."""
