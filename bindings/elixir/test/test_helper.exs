ExUnit.start(exclude: [:long])
