# Does everything at once on a shared slab, until its VM is killed: what tests/shared/killed.rs does in Rust.
#
# Usage: elixir -pa EBIN churn.exs SLAB SEED POLICY. SLAB is the path that all processes share, and POLICY a file with
# the policy as TOML. What is wrong it says after the word FAULT, and ends.
#
# No lock of a file goes with a slot here, as in Rust and C, since Elixir has none. What is held is counted by them.

[slab, seed, policy] = System.argv()
:rand.seed(:exsss, String.to_integer(seed))
{:ok, _} = Application.ensure_all_started(:tollgate)

fault = fn what, answer ->
  IO.puts(:stderr, "FAULT in Elixir, #{what}: #{inspect(answer)}")
  System.halt(3)
end

started =
  Tollgate.start_link(
    name: Churn,
    policy: {:toml, File.read!(policy)},
    shared: slab,
    clock: :os,
    # As in tests/shared/killed.rs.
    agents: 600,
    on_full: :deny,
    reservations: 256
  )

with {:error, _} <- started, do: fault.("start", started)

below = fn bound -> :rand.uniform(bound) - 1 end
id = fn bound -> "agent-#{below.(bound)}" end
[http, llm, conn] = for lane <- [:http, :llm, :conn], do: {nil, lane}

change = fn agent ->
  case below.(6) do
    0 -> Tollgate.Control.set_override(Churn, agent, "http", "1100/s burst 3")
    1 -> Tollgate.Control.assign(Churn, agent, "pro")
    2 -> Tollgate.Control.assign(Churn, agent, nil)
    3 -> Tollgate.Control.exempt(Churn, agent)
    4 -> Tollgate.Control.unexempt(Churn, agent)
    5 -> Tollgate.forget(Churn, agent)
  end
end

refusals = [:busy, :full, :reservations_full, :too_many_reservations, :unknown_reservation]

expect = fn
  _, {verdict, _} when verdict in [:allow, :warn, :deny, :ok] -> :ok
  _, {:error, reason} when is_atom(reason) -> reason in refusals || fault.("a refusal", reason)
  _, {:error, %Tollgate.Error{reason: :busy}} -> :ok
  _, answer when answer in [:ok, true, false] or is_map(answer) -> :ok
  what, answer -> fault.(what, answer)
end

churn = fn churn ->
  case below.(100) do
    choice when choice < 75 ->
      expect.("check", Tollgate.check(Churn, id.(5_000), http))

    choice when choice < 85 ->
      held = Tollgate.hold(Churn, "conn", conn)
      expect.("hold", held)
      if elem(held, 0) in [:allow, :warn], do: expect.("release", Tollgate.release(Churn, "conn", conn))

    choice when choice < 93 ->
      case Tollgate.reserve(Churn, id.(5_000), llm, 1 + below.(30), cost: 1 + below.(40)) do
        {verdict, _, reservation} when verdict in [:allow, :warn] ->
          expect.("settle", Tollgate.settle(Churn, reservation, below.(60)))

        answer ->
          expect.("reserve", answer)
      end

    _ ->
      expect.("change", change.(id.(60)))
  end

  churn.(churn)
end

# Ends when it is killed.
try do
  churn.(churn)
rescue
  error -> fault.("a crash", error)
catch
  kind, reason -> fault.("a crash", {kind, reason})
end
