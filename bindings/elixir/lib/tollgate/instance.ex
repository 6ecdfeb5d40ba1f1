defmodule Tollgate.Instance do
  @moduledoc false
  # The process that owns an instance. Checks do not go through it: they find
  # the limiter by the instance's name in `:persistent_term`, and call the NIF.
  # The name alone is the key, since a tuple costs a check a sixth more; `init`
  # makes sure that it is nobody else's.
  # What an operator changes does go through it, so that the file of the store
  # and the limiter always say the same.
  #
  # The limiter outlives a crash of its owner: buckets stay as they are, checks
  # go on, and the restarted owner takes it over if its options are the same.
  # When the owner is stopped in order, the limiter goes with it.

  use GenServer

  require Logger

  alias Tollgate.{Error, Events, Holds, Native, Policy, Store, Telemetry}

  @options [
    name: Tollgate,
    policy: :hub,
    agents: 100_000,
    on_full: :evict,
    id_hash: :multilinear,
    clock: :automatic,
    retry_after: nil,
    store: nil,
    always_exempt: nil,
    sight: false,
    roster: 0,
    reservations: 16_384,
    reservations_per_agent: 0,
    commit_memory: false,
    budgets: nil,
    save_budgets_every_ms: 5_000,
    log: false,
    telemetry: nil,
    telemetry_prefix: [:tollgate],
    sweep_every_ms: 300_000,
    sweep_idle_ms: 600_000
  ]

  @nothing {nil, [], false}

  @file_tries 250
  @file_wait_ms 20

  # What a check finds.
  @spec find(atom) :: {reference, tuple | nil}
  def find(name) do
    case :persistent_term.get(name, nil) do
      {reference, reporter, _options} -> {reference, reporter}
      nil -> raise ArgumentError, not_started(name)
    end
  end

  def not_started(name) when is_atom(name) do
    "there is no instance #{inspect(name)}: start {Tollgate, name: #{inspect(name)}} under a supervisor first"
  end

  def not_started(name), do: "an instance is named by an atom, got: #{inspect(name)}"

  # A change of what is decided about an agent, or about several; see `change`.
  def control(name, change) do
    find(name)

    case GenServer.call(name, {:control, change}, :infinity) do
      {:raise, error} -> raise error
      answer -> answer
    end
  end

  def child_spec(options) do
    %{id: {Tollgate, name_of(options)}, start: {__MODULE__, :start_link, [options]}}
  end

  def start_link(options) do
    options = check_options(options)
    GenServer.start_link(__MODULE__, options, name: options.name)
  end

  defp name_of(options) when is_list(options), do: Keyword.get(options, :name, Tollgate)
  defp name_of(_), do: Tollgate

  defp check_options(options) do
    unless Keyword.keyword?(options) do
      raise ArgumentError, "an instance is started with a keyword list of options, got: #{inspect(options)}"
    end

    case Keyword.keys(options) -- Keyword.keys(@options) do
      [] ->
        :ok

      unknown ->
        raise ArgumentError, "unknown options #{inspect(unknown)}; known are #{inspect(Keyword.keys(@options))}"
    end

    options = Map.new(Keyword.merge(@options, options))

    unless is_atom(options.name) and options.name not in [nil, true, false] do
      raise ArgumentError, "the name of an instance has to be an atom, got: #{inspect(options.name)}"
    end

    for key <- [:sweep_every_ms, :sweep_idle_ms, :save_budgets_every_ms],
        value = options[key],
        not (is_integer(value) and value > 0) do
      raise ArgumentError, "#{key} has to be a positive whole number, or nil, got: #{inspect(value)}"
    end

    unless is_nil(options.budgets) or is_binary(options.budgets) do
      raise ArgumentError, "budgets has to be the path of a file, or nil, got: #{inspect(options.budgets)}"
    end

    for key <- [:sight, :log], not is_boolean(options[key]) do
      raise ArgumentError, "#{key} has to be true or false, got: #{inspect(options[key])}"
    end

    %{
      options
      | retry_after: retry_after(options.retry_after, options.policy),
        always_exempt: always_exempt(options.always_exempt, options.policy),
        telemetry: telemetry(options.telemetry, options.telemetry_prefix, options.policy)
    }
  end

  # The hub tells waits in whole seconds, and its dashboard is never limited.
  defp retry_after(nil, :hub), do: :whole_seconds
  defp retry_after(nil, _), do: :milliseconds
  defp retry_after(chosen, _) when chosen in [:whole_seconds, :milliseconds], do: chosen

  defp retry_after(other, _),
    do: raise(ArgumentError, "retry_after has to be :whole_seconds or :milliseconds, got: #{inspect(other)}")

  defp always_exempt(nil, :hub), do: ["dashboard"]
  defp always_exempt(nil, _), do: []

  defp always_exempt(agents, _) do
    if is_list(agents) and Enum.all?(agents, &is_binary/1),
      do: agents,
      else: raise(ArgumentError, "always_exempt has to be a list of agents, got: #{inspect(agents)}")
  end

  defp telemetry(which, prefix, policy) do
    unless is_list(prefix) and Enum.all?(prefix, &is_atom/1) do
      raise ArgumentError, "telemetry_prefix has to be a list of atoms, got: #{inspect(prefix)}"
    end

    case which do
      nil -> if policy == :hub, do: :all, else: :notable
      which when which in [:all, :notable, :off] -> which
      other -> raise ArgumentError, "telemetry has to be :all, :notable or :off, got: #{inspect(other)}"
    end
  end

  @impl GenServer
  def init(options) do
    # So that `terminate` runs when a supervisor stops the instance.
    Process.flag(:trap_exit, true)

    with {:ok, store} <- Store.open(options.name, options.store) do
      left_behind = take_over(options)
      reference = left_behind || new(options)
      state = %{reference: reference, store: store, options: options, unsaved: nil}
      load(state)
      # A limiter that was left behind has its file, and knows more than that.
      if options.budgets && !left_behind, do: keep_budgets(reference, options.budgets, @file_tries)
      # Only now does anybody find it: what was decided is in force before the first check.
      reporter = Telemetry.reporter(options.telemetry, options.telemetry_prefix)
      :persistent_term.put(options.name, {reference, reporter, options})
      if options.log, do: Events.subscribe(options.name, [:violation])
      {:ok, state |> sweep_later() |> look_later() |> save_later()}
    else
      {:error, message} -> {:stop, ArgumentError.exception(message)}
    end
  rescue
    error in ArgumentError -> {:stop, error}
  end

  # The limiter of an instance that was stopped a moment ago gives its file up
  # when its memory is collected, so this may have to wait for it. It ends after
  # five seconds.
  defp keep_budgets(reference, path, tries) do
    case Native.keep_budgets_in(reference, path) do
      {:error, message} ->
        if tries == 0 or not (message =~ "is held by"), do: raise(ArgumentError, message)
        Process.sleep(@file_wait_ms)
        keep_budgets(reference, path, tries - 1)

      {_loaded, _ended, unknown, full, _ahead} when unknown + full > 0 ->
        Logger.warning("#{unknown} used budgets are of lanes that the policy does not have, #{full} found no room")

      _ ->
        :ok
    end
  end

  # What a crashed owner has left behind. A reference from before the NIF was
  # purged and loaded again is not one any more.
  defp take_over(%{name: name} = options) do
    case :persistent_term.get(name, nil) do
      {reference, _reporter, ^options} -> if living?(reference), do: reference
      {_reference, _reporter, %{name: ^name}} -> nil
      nil -> nil
      _ -> raise ArgumentError, "somebody else keeps a :persistent_term under #{inspect(name)}: choose another name"
    end
  end

  defp living?(reference) do
    is_integer(Native.now(reference))
  rescue
    ArgumentError -> false
  end

  defp new(options) do
    reference =
      Native.new(Policy.lines(options.policy), %{
        agents: options.agents,
        on_full: options.on_full,
        id_hash: options.id_hash,
        clock: options.clock,
        whole_seconds: options.retry_after == :whole_seconds,
        sight: options.sight,
        roster: options.roster,
        reservations: options.reservations,
        reservations_per_agent: options.reservations_per_agent,
        commit_memory: options.commit_memory
      })

    :ok = Native.name_lanes(reference, for({name, _limit} <- Native.lanes(reference), do: Policy.pair(name)))
    reference
  end

  # Puts in force what the store holds. A limiter that was taken over may know
  # a change that its owner did not live to write down: the store decides.
  defp load(%{reference: reference, store: store, options: options}) do
    gone = if store, do: Map.new(Native.assignments(reference), fn {agent, _} -> {agent, @nothing} end), else: %{}
    decided = Map.merge(gone, Map.new(Store.all(store)))
    always = Enum.reduce(options.always_exempt, decided, &exempted(&2, &1, reference))

    case Native.set_assignments(reference, Map.to_list(always)) do
      :ok -> :ok
      {:error, {_reason, message}} -> raise ArgumentError, "the store holds what the policy does not know: #{message}"
    end
  end

  defp exempted(decided, agent, reference) do
    {plan, overrides, _} = Map.get_lazy(decided, agent, fn -> Native.assignment(reference, agent) end)
    Map.put(decided, agent, {plan, overrides, true})
  end

  @impl GenServer
  def handle_call({:control, change}, _from, state) do
    answer = change(change, state)
    if answer == :ok, do: Events.send(state.options.name, :change, told(change))
    {:reply, answer, state}
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  defp told({:agent, agent, what}), do: %{what: what, agent: agent}
  defp told({:exempt_exactly, agents}), do: %{what: {:exempt_exactly, agents}}
  defp told({:policy, _policy}), do: %{what: :policy}

  # One agent: the limiter judges the change, then it is written down. If that
  # fails, the limiter goes back to what it was.
  defp change({:agent, agent, change}, state) do
    before = Native.assignment(state.reference, agent)

    with :ok <- allowed(change, agent, state),
         :ok <- apply_change(state.reference, agent, change) do
      write([{agent, Native.assignment(state.reference, agent)}], [{agent, before}], state)
    else
      {:error, {reason, message}} -> {:error, %Error{reason: reason, message: message}}
    end
  end

  # Exactly these agents, and those that always are, are exempt from now on.
  defp change({:exempt_exactly, agents}, state) do
    wanted = MapSet.new(agents ++ state.options.always_exempt)
    decided = Map.new(Native.assignments(state.reference))
    known = for {agent, {_, _, true}} <- decided, do: agent

    before =
      for agent <- Enum.uniq(known ++ MapSet.to_list(wanted)),
          {_, _, exempt} = assignment <- [Map.get(decided, agent, @nothing)],
          exempt != MapSet.member?(wanted, agent),
          do: {agent, assignment}

    later = for {agent, {plan, overrides, exempt}} <- before, do: {agent, {plan, overrides, not exempt}}

    case Native.set_assignments(state.reference, later) do
      :ok -> write(later, before, state)
      {:error, {reason, message}} -> {:error, %Error{reason: reason, message: message}}
    end
  end

  defp change({:policy, policy}, state) do
    case Native.replace_policy(state.reference, Policy.lines(policy)) do
      :ok -> :ok
      {:error, {reason, message}} -> {:error, %Error{reason: reason, message: message}}
    end
  end

  defp allowed({:exempt, false}, agent, state) do
    if agent in state.options.always_exempt do
      {:error, {:always_exempt, "#{inspect(agent)} is exempt as long as the instance lists it in always_exempt:"}}
    else
      :ok
    end
  end

  defp allowed(_change, _agent, _state), do: :ok

  defp apply_change(reference, agent, {:assign, plan}), do: Native.assign(reference, agent, plan)
  defp apply_change(reference, agent, {:override, lane, limit}), do: Native.set_override(reference, agent, lane, limit)
  defp apply_change(reference, agent, {:no_override, lane}), do: Native.remove_override(reference, agent, lane)
  defp apply_change(reference, agent, {:exempt, exempt}), do: Native.set_exempt(reference, agent, exempt)

  defp write(later, before, state) do
    with {:error, reason} <- Store.put(state.store, later) do
      :ok = Native.set_assignments(state.reference, before)
      {:error, %Error{reason: :store, message: "the store cannot be written: #{inspect(reason)}"}}
    end
  end

  @impl GenServer
  def handle_info(:sweep, state) do
    Native.sweep(state.reference, state.options.sweep_idle_ms * 1_000_000)
    {:noreply, sweep_later(state)}
  end

  def handle_info(:save_budgets, state), do: {:noreply, state |> save() |> save_later()}

  # What the limiter itself has to tell, to those who subscribe, and lines that are due, to the log.
  def handle_info(:look, %{reference: reference, options: options} = state) do
    if options.sight, do: Enum.each(Native.poll_events(reference), &tell(options.name, &1))
    if options.log, do: Enum.each(Native.log_due(reference, Native.now(reference)), &log/1)
    {:noreply, look_later(state)}
  end

  def handle_info({:tollgate, _name, :violation, %{agent: agent}}, %{reference: reference} = state) do
    Enum.each(Native.log_denied(reference, agent, Native.now(reference)), &log/1)
    {:noreply, state}
  end

  def handle_info(_, state), do: {:noreply, state}

  # Of abuse and changes the functions that cause them have told already.
  defp tell(name, {_number, {:saturated, lossy_evictions, refused}}),
    do: Events.send(name, :saturated, %{lossy_evictions: lossy_evictions, refused: refused})

  defp tell(name, {_number, {:unknown_action, channel, action}}),
    do: Events.send(name, :unknown_action, %{channel: channel, action: action})

  defp tell(name, {_number, {:clock_fell_back}}), do: Events.send(name, :clock_fell_back, %{})
  defp tell(_name, _event), do: :ok

  # A line begins with its kind: INFO, THROTTLE or SUMMARY.
  defp log(line), do: Logger.warning(line)

  @look_every_ms 1_000

  defp look_later(%{options: %{sight: false, log: false}} = state), do: state

  defp look_later(state) do
    Process.send_after(self(), :look, @look_every_ms)
    state
  end

  # What goes wrong is logged when it begins, and not every few seconds.
  defp save(%{reference: reference, unsaved: before} = state) do
    case Native.save_budgets(reference) do
      {:error, message} ->
        if message != before, do: Logger.error("used budgets are not saved: #{message}")
        %{state | unsaved: message}

      {_saved, _unsaved} ->
        %{state | unsaved: nil}
    end
  end

  defp save_later(%{options: %{budgets: path, save_budgets_every_ms: every}} = state) do
    if path && every, do: Process.send_after(self(), :save_budgets, every)
    state
  end

  defp sweep_later(%{options: %{sweep_every_ms: every, sweep_idle_ms: idle}} = state) do
    if every && idle, do: Process.send_after(self(), :sweep, every)
    state
  end

  @impl GenServer
  def terminate(reason, state) do
    Store.close(state.store)
    if state.options.budgets, do: save(state)

    if reason in [:normal, :shutdown] or match?({:shutdown, _}, reason) do
      :persistent_term.erase(state.options.name)
      Holds.forget(state.options.name)
    end
  end
end
