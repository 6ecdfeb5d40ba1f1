defmodule Tollgate.StormTest do
  # Many processes on one bucket, on a clock that stands still: exactly the
  # capacity is admitted, and every number that is left is given out once.
  use Tollgate.Case, async: true

  test "64 processes on one fresh bucket, 500 times", do: storm(500)

  @tag :long
  @tag timeout: :infinity
  test "64 processes on one fresh bucket, 10,000 times", do: storm(10_000)

  @processes 64

  defp storm(rounds) do
    name = start()

    for round <- 1..rounds do
      {tier, capacity} = Enum.at([heavy: 10, normal: 60], rem(round, 2))
      gate = :atomics.new(1, [])
      agent = "agent-#{round}"

      tasks =
        for _ <- 1..@processes do
          Task.async(fn ->
            await(gate)
            for _ <- 1..4, do: Tollgate.check(name, agent, {:http, tier})
          end)
        end

      :atomics.put(gate, 1, 1)
      answers = Enum.flat_map(tasks, &Task.await(&1, :infinity))
      left = for {verdict, left} <- answers, verdict in [:allow, :warn], do: left
      assert Enum.sort(left, :desc) == Enum.to_list((capacity - 1)..0)
      assert length(answers) == @processes * 4
      Tollgate.forget(name, agent)
    end
  end

  # Ends when the test opens the gate.
  defp await(gate) do
    if :atomics.get(gate, 1) == 0 do
      :erlang.yield()
      await(gate)
    end
  end
end
