"""KV page ownership: the page allocator and the radix prefix cache. No torch, no requests."""
