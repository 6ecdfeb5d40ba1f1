# What a check costs, beside what it replaces:
#
#   * the package: `Tollgate.check/3`, and its NIF with the reference at hand;
#   * the NIF made with Rustler, native/tollgate_nif, with the reference at hand;
#   * the reference: the token bucket on ETS that the hub's documents describe, with its exemption and override lookups;
#   * a fixed window on `:ets.update_counter`, with its clock and its arithmetic: the fastest peer we know;
#   * a NIF that does nothing: what any call costs.
#
# Numbers are nanoseconds of CPU time a call, of the whole VM, the loop around the call included (some 5 ns). All
# limiters take turns in one VM, round by round, so that what else the machine does meets all of them. Exemptions and
# overrides are in force in all of them that know such. Columns with one process run on one scheduler, those with 8 on
# all.
#
#     make elixir-bench         # or: elixir --erl "+sbwt none +sbwtdcpu none +sbwtdio none" -S mix run bench/check.exs
#
# (schedulers that wait busily would be counted as work). QUICK=1 is a short look. Ends with status 1 if a bar is
# missed.

defmodule Bench.Reference do
  @moduledoc "The hub's token bucket on ETS: read, refill, write, in three steps."

  def new do
    for table <- [:bench_buckets, :bench_overrides, :bench_whitelist] do
      if :ets.whereis(table) != :undefined, do: :ets.delete(table)
      :ets.new(table, [:named_table, :public, :set])
    end

    :ets.insert(:bench_whitelist, {"dashboard"})
    :ets.insert(:bench_overrides, {{"someone", :normal}, 1_000, 1.0})
  end

  # Thousandths of a token, and how many of them come back in a millisecond.
  defp defaults(:ws, :normal), do: {1_000_000_000_000, 1_000_000.0}
  defp defaults(:ws, :heavy), do: {1_000, 0.000001}
  defp defaults(:http, :normal), do: {60_000, 1.0}
  defp defaults(:http, :heavy), do: {10_000, 10_000 / 60_000}

  def check(agent, channel, tier) do
    if :ets.member(:bench_whitelist, agent) do
      {:allow, :exempt}
    else
      {capacity, rate} = limits(agent, channel, tier)
      key = {agent, channel, tier}
      now = System.monotonic_time(:millisecond)

      tokens =
        case :ets.lookup(:bench_buckets, key) do
          [] -> capacity
          [{_, tokens, last}] -> min(capacity, tokens + trunc(max(now - last, 0) * rate))
        end

      if tokens >= 1_000 do
        left = tokens - 1_000
        :ets.insert(:bench_buckets, {key, left, now})
        if left < capacity * 0.2, do: {:warn, div(left, 1_000)}, else: {:allow, div(left, 1_000)}
      else
        :ets.insert(:bench_buckets, {key, tokens, now})
        wait = trunc((1_000 - tokens) / rate)
        {:deny, div(wait + 999, 1_000) * 1_000}
      end
    end
  end

  defp limits(agent, channel, tier) do
    case :ets.lookup(:bench_overrides, {agent, tier}) do
      [{_, capacity, rate}] -> {capacity, rate}
      [] -> defaults(channel, tier)
    end
  end
end

defmodule Bench.FixedWindow do
  @moduledoc "So many in a minute, counted by `:ets.update_counter`. No exemption, no override, no wait that is exact."

  def new do
    if :ets.whereis(:bench_windows) != :undefined, do: :ets.delete(:bench_windows)

    :ets.new(:bench_windows, [
      :named_table,
      :public,
      :set,
      read_concurrency: true,
      write_concurrency: true,
      decentralized_counters: true
    ])
  end

  defp limit(:normal), do: 1_000_000_000_000
  defp limit(:heavy), do: 1

  def check(agent, channel, tier) do
    now = System.system_time(:millisecond)
    window = div(now, 60_000)
    key = {agent, channel, tier, window}
    limit = limit(tier)

    case :ets.update_counter(:bench_windows, key, {2, 1}, {key, 0}) do
      count when count <= limit -> {:allow, limit - count}
      _ -> {:deny, (window + 1) * 60_000 - now}
    end
  end
end

Code.require_file("hub.exs", __DIR__)

defmodule Bench do
  alias Tollgate.{Native, RustlerExample}

  @schedulers System.schedulers_online()
  # One lane of which nothing is denied, one of which everything is, and two of the hub's own.
  @ample "1000000000/second burst 1000000000"
  @none "1/day"
  @lanes [{"ws/normal", @ample}, {"ws/heavy", @none}, {"http/normal", "60/minute"}, {"http/heavy", "10/minute"}]

  def run do
    quick = System.get_env("QUICK") != nil
    Tollgate.Build.rustler()
    Code.require_file("../native/tollgate_nif/rustler_example.ex", __DIR__)

    native = start()
    limiters = limiters(native)

    IO.puts(
      "Elixir #{System.version()}, OTP #{System.otp_release()}, #{@schedulers} schedulers, " <>
        "clock #{Tollgate.Observe.snapshot(Bench.Limiter).clock}"
    )

    IO.puts("ns of CPU time a call: median (best) of #{rounds(quick)} rounds; all in one VM, taking turns\n")

    rows = for {title, tier, processes, keys} <- columns(), do: {title, column(limiters, tier, processes, keys, quick)}
    table = table(rows, limiters)
    IO.puts(table)
    {hub, hub_lines, hub_met} = hub(quick)
    IO.puts([hub, "\n", hub_lines])
    storms = if quick, do: over_admission(200, 1), else: over_admission(2_000, 3)
    IO.puts(storms)
    {lines, met} = bars(rows)
    IO.puts(lines)
    unless quick, do: publish([table, "\n", hub], storms, [lines, hub_lines])
    unless met and hub_met, do: System.halt(1)
  end

  # What a hub's own path costs, by bench/hub.exs.
  defp hub(quick) do
    Bench.Hub.start()
    rows = Bench.Hub.rows()

    calls =
      for {title, ours, theirs, _} <- rows, {who, call} <- [ours: ours, theirs: theirs], call, do: {{title, who}, call}

    :erlang.system_flag(:schedulers_online, 1)
    for {_, call} <- calls, do: measure(call, 1, ["agent-7"], 20_000)
    count = if quick, do: 50_000, else: 200_000

    rounds =
      for _ <- 1..rounds(quick), {key, call} <- Enum.shuffle(calls), do: {key, measure(call, 1, ["agent-7"], count)}

    :erlang.system_flag(:schedulers_online, @schedulers)
    rounds = Enum.group_by(rounds, &elem(&1, 0), &elem(&1, 1))
    {denied, longest, slowest, echo} = Bench.Hub.flood(if quick, do: 2, else: 4)

    lines =
      for {title, _, theirs, _} <- rows do
        cell = fn who -> "#{round(median(rounds[{title, who}]))} (#{round(Enum.min(rounds[{title, who}]))})" end
        "| #{title} | #{cell.(:ours)} | #{if theirs, do: cell.(:theirs), else: "–"} |\n"
      end

    table = ["| ns a call | tollgate | the hub's own code |\n|---|---:|---:|\n" | lines]

    bars =
      for {title, _, theirs, most} <- rows, most != nil do
        ours = median(rounds[{title, :ours}])
        {"#{title}: #{round(ours)} ns; at most #{most}#{if theirs, do: against(rounds, title)}", ours <= most}
      end

    half =
      median(rounds[{"WebSocket message, denied", :ours}]) <=
        0.5 * median(rounds[{"WebSocket message, denied", :theirs}])

    flood = [
      {"A WebSocket message that is denied costs at most half of the hub's own code", half},
      {"#{denied} denials with log: true: the owner's queue was #{longest} at the longest; under 1,000",
       longest < 1_000},
      {"Meanwhile a control call took #{slowest} ms at the longest, and a call of an idle process #{echo} ms; under 50, " <>
         "or three times the latter on a machine that is busy otherwise", slowest < max(50, 3 * echo)}
    ]

    lines = for {text, met} <- bars ++ flood, do: "- #{text}: #{if met, do: "met", else: "MISSED"}.\n"
    {IO.iodata_to_binary(table), IO.iodata_to_binary(lines), Enum.all?(bars ++ flood, &elem(&1, 1))}
  end

  defp against(rounds, title) do
    ", and #{ratio(median(rounds[{title, :ours}]) / median(rounds[{title, :theirs}]))} times the hub's own code"
  end

  @marker "<!-- make elixir-bench writes what follows -->"

  # Puts the numbers into the README, where its marker stands.
  defp publish(table, storms, lines) do
    path = Path.expand("../README.md", __DIR__)
    [head, _old] = path |> File.read!() |> String.split(@marker, parts: 2)
    File.write!(path, [head, @marker, "\n\n", table, "\n", wrapped(storms), "\n", wrapped(lines)])
    IO.puts("== wrote #{Path.relative_to_cwd(path)}")
  end

  # No line of the page is wider than those of its sources.
  defp wrapped(lines) do
    for line <- lines |> IO.iodata_to_binary() |> String.split("\n", trim: true) do
      [wrap(String.split(line, " "), 0), "\n"]
    end
  end

  defp wrap([], _), do: []
  defp wrap([word | words], 0), do: [word | wrap(words, String.length(word))]

  defp wrap([word | words], width) do
    length = String.length(word)

    if width + 1 + length > 118,
      do: ["\n  ", word | wrap(words, 2 + length)],
      else: [?\s, word | wrap(words, width + 1 + length)]
  end

  # What is measured: of which tier, how many processes, and who asks.
  defp columns do
    [
      {"1 process, 1 agent, allow", :normal, 1, ["agent-7"]},
      {"1 process, 1 agent, deny", :heavy, 1, ["agent-7"]},
      {"1 process, 10,000 agents", :normal, 1, agents(10_000)},
      {"8 processes, 1 agent", :normal, 8, ["agent-7"]},
      {"8 processes, 8 agents", :normal, 8, :own}
    ]
  end

  defp agents(count), do: for(at <- 1..count, do: "agent-#{at}")
  defp rounds(true), do: 5
  defp rounds(false), do: 15
  defp calls(true, _processes), do: 100_000
  defp calls(false, 1), do: 400_000
  defp calls(false, _processes), do: 200_000

  defp column(limiters, tier, processes, keys, quick) do
    :erlang.system_flag(:schedulers_online, if(processes == 1, do: 1, else: @schedulers))
    checks = for {name, of} <- limiters, do: {name, of.(tier)}
    # Once round, so that all have met their agents.
    for {_, check} <- checks, do: measure(check, processes, keys, 20_000)

    rounds =
      for _ <- 1..rounds(quick), {name, check} <- Enum.shuffle(checks) do
        {name, measure(check, processes, keys, calls(quick, processes))}
      end

    :erlang.system_flag(:schedulers_online, @schedulers)
    Enum.group_by(rounds, &elem(&1, 0), &elem(&1, 1))
  end

  # Each is called by a function of the agent, made for a tier.
  defp limiters(native) do
    rustler = RustlerExample.new(100_000, @lanes)
    Bench.Reference.new()
    Bench.FixedWindow.new()

    [
      {"Tollgate.check/3", fn tier -> checked({:ws, tier}) end},
      {"its NIF, reference at hand", fn tier -> &Native.check(native, &1, :ws, tier) end},
      {"Rustler, reference at hand", fn tier -> rustled(rustler, tier) end},
      {"the reference on ETS", fn tier -> &Bench.Reference.check(&1, :ws, tier) end},
      {"fixed window on update_counter", fn tier -> &Bench.FixedWindow.check(&1, :ws, tier) end},
      {"a NIF that does nothing", fn _tier -> fn _agent -> Native.nothing() end end}
    ]
  end

  # The lane is at hand, as the constant is in the code of a caller.
  defp checked(lane), do: &Tollgate.check(Bench.Limiter, &1, lane)

  defp rustled(reference, tier), do: &RustlerExample.check(reference, &1, :ws, tier)

  defp start do
    {:ok, _} = Tollgate.start_link(name: Bench.Limiter, policy: [lanes: @lanes], agents: 100_000)
    :ok = Tollgate.Control.exempt(Bench.Limiter, "dashboard")
    :ok = Tollgate.Control.set_override(Bench.Limiter, "someone", :normal, "1/second")
    {reference, _} = Tollgate.Instance.find(Bench.Limiter)
    reference
  end

  # Nanoseconds of CPU time a call, of all threads of the VM.
  defp measure(check, processes, keys, calls) do
    each = div(calls, processes)

    workers =
      for at <- 1..processes do
        own = if keys == :own, do: ["agent-#{at}"], else: keys
        agents = List.to_tuple(own)
        spawn_monitor(fn -> receive(do: (:go -> loop(check, agents, tuple_size(agents), 0, each))) end)
      end

    before = cpu_us()
    for {pid, _} <- workers, do: send(pid, :go)
    for {_, monitor} <- workers, do: receive(do: ({:DOWN, ^monitor, _, _, :normal} -> :ok))
    (cpu_us() - before) * 1_000 / (each * processes)
  end

  defp loop(_check, _agents, _size, _at, 0), do: :ok

  defp loop(check, agents, size, at, left) do
    check.(elem(agents, at))
    # A step that visits all of them, far apart.
    loop(check, agents, size, rem(at + 7_919, size), left - 1)
  end

  # In steps of a millisecond: a round takes tens of them.
  defp cpu_us do
    {milliseconds, _} = :erlang.statistics(:runtime)
    milliseconds * 1_000
  end

  defp table(rows, limiters) do
    lines =
      for {name, _} <- limiters do
        cells = for {_, rounds} <- rows, do: "#{round(median(rounds[name]))} (#{round(Enum.min(rounds[name]))})"
        "| #{name} | " <> Enum.join(cells, " | ") <> " |\n"
      end

    titles = "| ns a call | " <> Enum.map_join(rows, " | ", &elem(&1, 0)) <> " |\n"
    Enum.join([titles, "|---|" <> String.duplicate("---:|", length(rows)) <> "\n" | lines])
  end

  defp median(values), do: values |> Enum.sort() |> Enum.at(div(length(values), 2))

  # Fresh buckets of 10, met by 8 processes at once: time refills one token in six seconds, so none meanwhile. And one
  # bucket of 60 a minute, asked by 8 processes for seconds on end.
  defp over_admission(trials, seconds) do
    Enum.map_join(rivals(:heavy), &fresh_buckets(&1, trials)) <> Enum.map_join(rivals(:normal), &soak(&1, seconds))
  end

  defp rivals(tier) do
    [
      {"Tollgate.check/3", checked({:http, tier})},
      {"the reference on ETS", &Bench.Reference.check(&1, :http, tier)}
    ]
  end

  defp fresh_buckets({name, check}, trials) do
    admitted = for trial <- 1..trials, do: storm(check, "storm-#{trial}")
    over = Enum.count(admitted, &(&1 > 10))

    "- 8 processes on fresh buckets of 10, #{name}: #{over} of #{trials} admitted more, at worst " <>
      "#{Enum.max(admitted)}.\n"
  end

  defp soak({name, check}, seconds) do
    started = System.monotonic_time(:millisecond)
    tasks = for _ <- 1..8, do: Task.async(fn -> until(check, started + seconds * 1_000, 0) end)
    admitted = tasks |> Task.await_many(:infinity) |> Enum.sum()
    entitled = 60 + div(System.monotonic_time(:millisecond) - started, 1_000)
    "- 8 processes on one bucket of 60 a minute for #{seconds} s, #{name}: #{admitted} of #{entitled} admitted.\n"
  end

  # Ends when its time is over.
  defp until(check, ending, admitted) do
    now = Enum.count(1..1_000, fn _ -> match?({allowed, _} when allowed in [:allow, :warn], check.("soak")) end)
    if System.monotonic_time(:millisecond) < ending, do: until(check, ending, admitted + now), else: admitted + now
  end

  defp storm(check, agent) do
    gate = :atomics.new(1, [])

    tasks =
      for _ <- 1..8 do
        Task.async(fn ->
          await(gate)
          Enum.count(1..200, fn _ -> match?({allowed, _} when allowed in [:allow, :warn], check.(agent)) end)
        end)
      end

    :atomics.put(gate, 1, 1)
    tasks |> Task.await_many(:infinity) |> Enum.sum()
  end

  defp await(gate), do: if(:atomics.get(gate, 1) == 0, do: await(gate))

  defp bars(rows) do
    at = fn title, name -> rows |> List.keyfind!(title, 0) |> elem(1) |> Map.fetch!(name) end
    ours = &median(at.(&1, "Tollgate.check/3"))
    {one, many} = {"1 process, 1 agent, allow", "8 processes, 1 agent"}
    apart = median(at.(one, "the reference on ETS")) / ours.(one)
    contended = Enum.min(at.(many, "the reference on ETS")) / ours.(many)
    growth = ours.(many) / ours.(one)

    bars = [
      {"One process, one agent: the reference costs #{ratio(apart)} times as much; at least 3", apart >= 3},
      {"8 processes, one agent: the reference's best round costs #{ratio(contended)} times as much; at least 6",
       contended >= 6},
      {"8 processes, one agent: #{ratio(growth)} times one process; at most 1.3", growth <= 1.3}
    ]

    against =
      Enum.map_join(rows, "; ", fn {title, rounds} ->
        "#{ratio(median(rounds["Tollgate.check/3"]) / median(rounds["fixed window on update_counter"]))} (#{title})"
      end)

    lines = for {text, met} <- bars, do: "- #{text}: #{if met, do: "met", else: "MISSED"}.\n"
    {Enum.join(lines) <> "- Times the fixed window: #{against}.\n", Enum.all?(bars, &elem(&1, 1))}
  end

  defp ratio(value), do: :erlang.float_to_binary(value / 1, decimals: 2)
end

Bench.run()
