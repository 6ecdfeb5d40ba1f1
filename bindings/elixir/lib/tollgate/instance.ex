defmodule Tollgate.Instance do
  @moduledoc false
  # The process that owns an instance. Checks do not go through it: they find
  # the limiter by the instance's name in `:persistent_term`, and call the NIF.
  # The name alone is the key, since a tuple makes a check a sixth slower;
  # `init` makes sure that nobody else uses it.
  # Changes do go through it, so that the file of the store and the limiter
  # always agree.
  #
  # The limiter outlives a crash of its owner: buckets stay as they are, checks
  # go on, and the restarted owner takes it over if its options are the same.
  # When the owner is stopped in order, the limiter goes with it.

  use GenServer

  require Logger

  alias Tollgate.{Error, Events, Headers, Holds, JSON, Log, Native, Options, Policy, Redis, Store, Telemetry}

  @nothing {nil, [], false}

  @file_tries 250
  @file_wait_ms 20

  # What a check finds.
  @spec find(atom) :: {reference, tuple | nil}
  def find(name) do
    {reference, reporter, _options, _aux} = entry(name)
    {reference, reporter}
  end

  # All that is kept for an instance: `{reference, reporter, options, aux}`. `aux` has the lanes with what is prepared
  # for them, who wants its events, and whether denials are logged.
  @spec entry(atom) :: {reference, tuple | nil, map, map}
  def entry(name) do
    case :persistent_term.get(name, nil) do
      {_reference, _reporter, _options, _aux} = entry -> entry
      _ -> raise ArgumentError, not_started(name)
    end
  end

  def not_started(name) when is_atom(name) do
    "there is no instance #{inspect(name)}: start {Tollgate, name: #{inspect(name)}} under a supervisor first"
  end

  def not_started(name), do: "an instance is named by an atom, got: #{inspect(name)}"

  # Has the owner make a change; see `change`.
  def control(name, change) do
    find(name)

    case GenServer.call(name, {:control, change}, :infinity) do
      {:raise, error} -> raise error
      answer -> answer
    end
  end

  def child_spec(options) do
    %{id: {Tollgate, Options.name(options)}, start: {__MODULE__, :start_link, [Redis.hide(options)]}}
  end

  def start_link(options) do
    options = options |> Redis.hide() |> Options.check()
    GenServer.start_link(__MODULE__, options, name: options.name)
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
      # A limiter that was left behind has its file, and is ahead of it.
      if options.budgets && !left_behind, do: keep_budgets(reference, options.budgets, @file_tries)
      # Only now can it be found: assignments are in force before the first check.
      reporter = Telemetry.reporter(options.telemetry, options.telemetry_prefix)
      :persistent_term.put(options.name, {reference, reporter, options, aux(reference, options)})
      {:ok, state |> sweep_later() |> poll_later() |> save_later()}
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
        if tries == 0 or not (message =~ "is locked by"), do: raise(ArgumentError, message)
        Process.sleep(@file_wait_ms)
        keep_budgets(reference, path, tries - 1)

      {_loaded, _ended, unknown, full, _ahead} when unknown + full > 0 ->
        Logger.warning("#{unknown} used budgets are of lanes that the policy does not have, #{full} found no room")

      _ ->
        :ok
    end
  end

  # The limiter of a crashed owner. A reference from before the NIF was purged
  # and loaded again is not valid any more.
  defp take_over(%{name: name} = options) do
    case :persistent_term.get(name, nil) do
      {reference, _reporter, ^options, _aux} -> if living?(reference), do: reference
      {_reference, _reporter, %{name: ^name}, _aux} -> nil
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
    reference = Native.new(Policy.source(options.policy), Options.native(options))
    :ok = Native.name_lanes(reference, for({name, _limit} <- Native.lanes(reference), do: Policy.pair(name)))
    reference
  end

  # Those who subscribed to the events of a crashed owner stay subscribed.
  defp aux(reference, options) do
    events =
      case :persistent_term.get(options.name, nil) do
        {_, _, _, %{events: {wanted, _}}} -> {wanted, Events.pubsub(options.pubsub)}
        nil -> Events.new(Events.pubsub(options.pubsub))
      end

    lanes = for {name, _limit} <- Native.lanes(reference), do: prepared(name)
    %{lanes: List.to_tuple(lanes), events: events, log: options.log}
  end

  # What is the same in all answers about a lane, written once: the start of a warning, the end of a denial, and its
  # name in a header.
  defp prepared(name) do
    {channel, tier} = Policy.pair(name)
    text = JSON.encode(tier)
    warning = ~s({"type":"rate_limit_warning","tier":#{text},"remaining":)
    {channel, tier, %{warning: warning, denial: ~s(,"tier":#{text}}), name: name, quoted: Headers.string(name)}}
  end

  # Puts the store's assignments in force. A limiter that was taken over may have
  # a change that its owner died before writing down: the store decides.
  defp load(%{reference: reference, store: store, options: options}) do
    gone = if store, do: Map.new(Native.assignments(reference), fn {agent, _} -> {agent, @nothing} end), else: %{}
    decided = Map.merge(gone, Map.new(Store.all(store)))
    always = Enum.reduce(options.always_exempt, decided, &exempted(&2, &1, reference))

    case Native.set_assignments(reference, Map.to_list(always)) do
      :ok -> :ok
      {:error, {reason, message}} when reason in [:busy, :shared] -> raise ArgumentError, message
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
    if answer == :ok, do: Events.send(state.options.name, :change, changed(change))
    {:reply, answer, state}
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  defp changed({:agent, agent, what}), do: %{what: what, agent: agent}
  defp changed({:allowlist, agents}), do: %{what: {:allowlist, agents}}
  defp changed({:policy, _policy}), do: %{what: :policy}

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

  # Exactly these agents, and those that always are, become exempt.
  defp change({:allowlist, agents}, state) do
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
    case Native.replace_policy(state.reference, Policy.source(policy)) do
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

  # Events of the limiter go to the subscribers, lines that are due to the log.
  def handle_info(:poll, %{reference: reference, options: options} = state) do
    if options.observe, do: Enum.each(Native.poll_events(reference), &pass_on(options.name, &1))
    if options.log, do: Log.due(reference)
    {:noreply, poll_later(state)}
  end

  def handle_info(_, state), do: {:noreply, state}

  # Abuse and changes were sent by the functions that caused them.
  defp pass_on(name, {:saturated, lossy_evictions, refused}),
    do: Events.send(name, :saturated, %{lossy_evictions: lossy_evictions, refused: refused})

  defp pass_on(name, {:unknown_action, channel, action}),
    do: Events.send(name, :unknown_action, %{channel: channel, action: action})

  defp pass_on(name, {:clock_fell_back}), do: Events.send(name, :clock_fell_back, %{})
  defp pass_on(_name, _event), do: :ok

  @poll_every_ms 1_000

  defp poll_later(%{options: %{observe: false, log: false}} = state), do: state

  defp poll_later(state) do
    Process.send_after(self(), :poll, @poll_every_ms)
    state
  end

  # A failure is logged when it begins, and not every few seconds.
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
      if state.options.redis, do: Native.stop_engine(state.reference)
      :persistent_term.erase(state.options.name)
      Holds.forget(state.options.name)
    end
  end
end
