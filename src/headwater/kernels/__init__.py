"""The operations a model is made of, behind one interface."""
