"""What must wait? Binds are held until their gang can start whole.

`book` decides and does nothing else; `barrier` keeps the futures and carries out what it says.
"""
