"""OpenAI's objects as pydantic models: requests are checked by them, /docs shows them all."""
