defmodule TollgateTest do
  use Tollgate.Case, async: true

  doctest Tollgate

  # The examples share the default instance.
  setup context do
    if context.test_type == :doctest do
      for agent <- ["agent-7", "agent-8", "team-1"], do: Tollgate.forget(Tollgate, agent)
    end

    :ok
  end

  @capacities [light: 120, normal: 60, heavy: 10]
  @lanes for channel <- [:ws, :http], {tier, capacity} <- @capacities, do: {channel, tier, capacity}

  describe "the contract of the hub" do
    test "the first request leaves the capacity less one" do
      name = start()

      for {channel, tier, capacity} <- @lanes do
        assert Tollgate.check(name, "agent-7", {channel, tier}) == {:allow, capacity - 1}
      end
    end

    test "denies after the capacity" do
      name = start()

      for {channel, tier, capacity} <- @lanes do
        assert drain(name, "agent-7", {channel, tier}, capacity) == {:warn, 0}
        assert {:deny, _} = Tollgate.check(name, "agent-7", {channel, tier})
      end
    end

    test "the wait is a multiple of 1000, at least that, and always suffices" do
      name = start()

      for {channel, tier, capacity} <- @lanes do
        drain(name, "agent-7", {channel, tier}, capacity)

        for elapsed <- [0, 1, 499, 500, 777, 999] do
          Tollgate.advance_clock(name, elapsed)
          {:deny, wait} = deny(name, "agent-7", channel, tier)
          assert wait >= 1000 and rem(wait, 1000) == 0
          Tollgate.advance_clock(name, wait)
          assert {:warn, _} = Tollgate.check(name, "agent-7", {channel, tier})
        end
      end
    end

    test "refills while it waits, and not beyond the capacity" do
      name = start()
      drain(name, "agent-7", {:ws, :light}, 120)
      Tollgate.advance_clock(name, 30_000)
      assert Tollgate.peek(name, "agent-7", {:ws, :light}).remaining == 60
      Tollgate.advance_clock(name, 30_000)
      assert Tollgate.check(name, "agent-7", {:ws, :light}) == {:allow, 119}
      Tollgate.advance_clock(name, 86_400_000)
      assert Tollgate.check(name, "agent-7", {:ws, :light}) == {:allow, 119}
    end

    test "warns below a fifth of the capacity" do
      name = start()

      for {tier, first} <- [light: 23, normal: 11, heavy: 1] do
        answers = for _ <- 1..@capacities[tier], do: Tollgate.check(name, "agent-7", {:ws, tier})
        {allowed, warned} = Enum.split_while(answers, &match?({:allow, _}, &1))
        assert List.last(allowed) == {:allow, first + 1}
        assert warned == for(left <- first..0, do: {:warn, left})
      end
    end

    test "agents, channels and tiers are independent" do
      name = start()
      drain(name, "agent-7", {:ws, :normal}, 61)
      assert {:deny, _} = Tollgate.check(name, "agent-7", {:ws, :normal})
      assert Tollgate.check(name, "agent-8", {:ws, :normal}) == {:allow, 59}
      assert Tollgate.check(name, "agent-7", {:http, :normal}) == {:allow, 59}
      assert Tollgate.check(name, "agent-7", {:ws, :light}) == {:allow, 119}
    end

    test "normal load never warns" do
      name = start()

      for _ <- 1..600 do
        assert {:allow, _} = Tollgate.check(name, "agent-7", {:ws, :normal})
        Tollgate.advance_clock(name, 6_000)
      end
    end

    # A limiter that writes the time on a denial never gives this client a token.
    test "a client that polls an empty bucket every millisecond gets what it is entitled to" do
      name = start()
      drain(name, "agent-7", {:ws, :heavy}, 10)

      admitted =
        Enum.count(1..12_000, fn _ ->
          Tollgate.advance_clock(name, 1)
          match?({:warn, _}, Tollgate.check(name, "agent-7", {:ws, :heavy}))
        end)

      assert admitted == 2
    end
  end

  test "an id is any bytes" do
    name = start()

    for id <- [<<0>>, <<255, 0, 254>>, "\"quoted\"\n", String.duplicate("x", 256), <<>> <> "zwölf"] do
      assert Tollgate.check(name, id, {:ws, :light}) == {:allow, 119}
    end

    # A part of a larger binary, and one that does not begin at a byte.
    <<_::3, id::binary-size(4), _::5>> = "12345"
    assert Tollgate.check(name, id, {:ws, :light}) == {:allow, 119}
  end

  describe "batches" do
    test "of any length answer as single checks would" do
      for size <- [0, 1, 2, 511, 512, 513, 1024, 3000] do
        {one, many} = {start(), start()}
        requests = for at <- 1..size//1, do: {"agent-#{rem(at * 7, 5)}", {:ws, :heavy}, cost: rem(at, 3) + 1}

        single = for {agent, lane, options} <- requests, do: Tollgate.check(one, agent, lane, options)
        assert Tollgate.check_many(many, requests) == single
      end
    end

    test "an invalid request raises, and nothing is charged, wherever it is" do
      name = start()

      for size <- [10, 600, 2_000], at <- [0, div(size, 2), size - 1] do
        requests = List.replace_at(List.duplicate({"agent-7", {:ws, :light}}, size), at, {"agent-7", {:ws, :nothing}})

        assert_raise ArgumentError, ~r/no lane of channel ws and tier nothing/, fn ->
          Tollgate.check_many(name, requests)
        end
      end

      assert Tollgate.check(name, "agent-7", {:ws, :light}) == {:allow, 119}
    end

    test "an answer that is an error stands in its place" do
      name = start()
      requests = [{"agent-7", {:ws, :heavy}, cost: 11}, {"agent-7", {:ws, :heavy}, cost: 10}]
      assert Tollgate.check_many(name, requests) == [{:error, :cost_above_capacity}, {:warn, 0}]
    end

    test "the longest call into the NIF is as long as stated" do
      name = start()
      {reference, _} = Tollgate.Instance.find(name)
      request = {"agent-7", {:ws, :light}}
      assert length(Tollgate.Native.check_many(reference, List.duplicate(request, 512), [])) == 512

      assert_raise ArgumentError, ~r/up to 512/, fn ->
        Tollgate.Native.check_many(reference, List.duplicate(request, 513), [])
      end
    end
  end

  test "invalid arguments raise, say which, and charge nothing" do
    name = start()

    for {call, message} <- [
          {fn -> Tollgate.check(name, "", {:ws, :light}) end, "the agent has to have 1 to 256 bytes"},
          {fn -> Tollgate.check(name, String.duplicate("x", 257), {:ws, :light}) end, "has 257"},
          {fn -> Tollgate.check(name, :agent, {:ws, :light}) end, "the agent has to be a binary"},
          {fn -> Tollgate.check(name, <<1::3>>, {:ws, :light}) end, "the agent has to be a binary"},
          {fn -> Tollgate.check(name, "a", {:smoke, :light}) end, "channel smoke and tier light"},
          {fn -> Tollgate.check(name, "a", {:ws, "light"}) end, "it has: ws light, ws normal"},
          {fn -> Tollgate.check(name, "a", {:ws, :light}, cost: 0) end, "the cost has to be"},
          {fn -> Tollgate.check(name, "a", {:ws, :light}, cost: -1) end, "got: -1"},
          {fn -> Tollgate.check(name, "a", {:ws, :light}, cost: 1.5) end, "the cost has to be"},
          {fn -> Tollgate.check(name, "a", {:ws, :light}, cost: 2 ** 64) end, "the cost has to be"},
          {fn -> Tollgate.check(name, "a", {:ws, :light}, price: 2) end,
           "the options are cost:, plan:, at:, counted:, limit:, got: price"},
          {fn -> Tollgate.check(Nobody, "a", {:ws, :light}) end, "there is no instance Nobody"},
          {fn -> Tollgate.check("limiter", "a", {:ws, :light}) end, "named by an atom"},
          {fn -> Tollgate.check_many(name, :requests) end, "have to be a list"},
          {fn -> Tollgate.check_many(name, [{"a", {:ws, :light}} | :more]) end, "have to be a list"},
          {fn -> Tollgate.check_many(name, [{"a"}]) end, "a request has to be"},
          {fn -> Tollgate.check_many(name, [{"a", {:ws, :light}, cost: 0}]) end, "the cost has to be"},
          {fn -> Tollgate.peek(name, "a", {:ws, :no}) end, "channel ws and tier no"},
          {fn -> Tollgate.refund(name, "a", {:ws, :light}, cost: 0) end, "the cost has to be"},
          {fn -> Tollgate.forget(name, "") end, "the agent has to have"},
          {fn -> Tollgate.advance_clock(name, -1) end, "milliseconds"}
        ] do
      assert_raise ArgumentError, ~r/#{Regex.escape(message)}/, call
    end

    assert Tollgate.check(name, "a", {:ws, :light}) == {:allow, 119}
  end

  test "a cost above the capacity is an answer of its own, and charges nothing" do
    name = start()
    assert Tollgate.check(name, "agent-7", {:ws, :heavy}, cost: 11) == {:error, :cost_above_capacity}
    assert Tollgate.refund(name, "agent-7", {:ws, :heavy}, cost: 11) == {:error, :cost_above_capacity}
    assert Tollgate.check(name, "agent-7", {:ws, :heavy}, cost: 10) == {:warn, 0}
  end

  test "a newcomer is refused when the instance is full and denies" do
    name = start(agents: 1, on_full: :deny)
    answers = for at <- 1..1_000, do: Tollgate.check(name, "agent-#{at}", {:ws, :heavy})
    assert {:error, :full} in answers
    # Those that are known are limited as ever.
    assert Tollgate.check(name, "agent-1", {:ws, :heavy}) == {:allow, 8}
  end

  test "waits are in milliseconds, or in whole seconds for the hub, and :infinity if none helps" do
    lanes = [lanes: [{"api/read", "3/second"}, {"api/closed", "deny"}, {"alone", "1/minute"}]]
    name = start(policy: lanes)
    drain(name, "agent-7", {:api, :read}, 3)
    assert Tollgate.check(name, "agent-7", {:api, :read}) == {:deny, 334}
    assert Tollgate.check(name, "agent-7", {:api, :closed}) == {:deny, :infinity}
    assert Tollgate.check(name, "agent-7", {nil, :alone}) == {:warn, 0}

    hub = start(policy: lanes, retry_after: :whole_seconds)
    drain(hub, "agent-7", {:api, :read}, 3)
    assert Tollgate.check(hub, "agent-7", {:api, :read}) == {:deny, 1_000}
    assert Tollgate.check(hub, "agent-7", {:api, :closed}) == {:deny, 60_000}
  end

  test "a refund never goes beyond full" do
    name = start()
    Tollgate.check(name, "agent-7", {:ws, :heavy})
    assert Tollgate.refund(name, "agent-7", {:ws, :heavy}, cost: 10).remaining == 10
    assert Tollgate.check(name, "agent-7", {:ws, :heavy}) == {:allow, 9}
  end

  test "a sweep forgets those that are idle, and nobody else" do
    name = start()
    for agent <- ["a", "b", "c"], do: Tollgate.check(name, agent, {:ws, :heavy})
    Tollgate.advance_clock(name, 600_000)
    Tollgate.check(name, "c", {:ws, :heavy})
    assert Tollgate.Observe.snapshot(name).agents == 3
    assert Tollgate.sweep(name, 60_000) == 2
    assert Tollgate.Observe.snapshot(name).agents == 1
    assert Tollgate.check(name, "c", {:ws, :heavy}) == {:allow, 8}
  end

  defp deny(name, agent, channel, tier) do
    case Tollgate.check(name, agent, {channel, tier}) do
      {:deny, _} = denied -> denied
      _ -> deny(name, agent, channel, tier)
    end
  end
end
