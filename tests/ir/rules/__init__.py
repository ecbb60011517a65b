"""What breaks each rule of the verifier, by theme: graphs and plans with one thing wrong."""
