"""The OpenAI dialect: a translation to native requests and back."""
