defmodule Tollgate.Holds do
  @moduledoc false
  # Slots that belong to processes: `Tollgate.hold/4`. One process for all
  # instances takes the slots, monitors their owners and releases them when
  # those end. It takes the slot itself, so that an owner cannot end between
  # taking one and being monitored.
  #
  # Its state is in a table of the application's, so that it survives: if it
  # crashes, its successor monitors the same owners, and learns at once of those
  # that have ended meanwhile.

  use GenServer

  alias Tollgate.Native

  @table __MODULE__

  # Called by the application itself, whose process then owns the table.
  def make_table, do: :ets.new(@table, [:named_table, :public, :set])

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def hold(instance, owner, reference, agent, lane, options) do
    call({:hold, instance, owner, reference, agent, lane, options})
  end

  def release(instance, owner, agent, lane), do: call({:release, instance, owner, agent, lane})

  # An instance was stopped in order, and its limiter goes with it.
  def forget(instance), do: GenServer.cast(__MODULE__, {:forget, instance})

  defp call(request) do
    case GenServer.call(__MODULE__, request, :infinity) do
      {:raise, error} -> raise error
      answer -> answer
    end
  end

  @impl GenServer
  def init(nil) do
    for {old, hold} <- :ets.tab2list(@table) do
      :ets.delete(@table, old)
      watch(hold)
    end

    {:ok, nil}
  end

  @impl GenServer
  def handle_call({:hold, instance, owner, reference, agent, lane, options}, _from, state) do
    answer = Native.hold(reference, agent, lane, options)

    case answer do
      # An exempt agent takes no slot, and has none to release.
      {:allow, :exempt} ->
        watch({owner, instance, reference, agent, lane, :exempt})

      {held, _} when held in [:allow, :warn] ->
        watch({owner, instance, reference, agent, lane, Keyword.take(options, [:cost, :plan])})

      _ ->
        :ok
    end

    {:reply, answer, state}
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  def handle_call({:release, instance, owner, agent, lane}, _from, state) do
    case :ets.match(@table, {:"$1", {owner, instance, :_, agent, lane, :_}}, 1) do
      {[[monitor]], _} ->
        Process.demonitor(monitor, [:flush])
        {:reply, give_back(monitor), state}

      :"$end_of_table" ->
        {:reply, {:error, :not_held}, state}
    end
  end

  @impl GenServer
  def handle_cast({:forget, instance}, state) do
    for [monitor] <- :ets.match(@table, {:"$1", {:_, instance, :_, :_, :_, :_}}) do
      Process.demonitor(monitor, [:flush])
      :ets.delete(@table, monitor)
    end

    {:noreply, state}
  end

  @impl GenServer
  def handle_info({:DOWN, monitor, :process, _pid, _reason}, state) do
    give_back(monitor)
    {:noreply, state}
  end

  def handle_info(_, state), do: {:noreply, state}

  defp watch({owner, _, _, _, _, _} = hold), do: :ets.insert(@table, {Process.monitor(owner), hold})

  # Out of the table first: a slot that is released twice would be somebody else's.
  defp give_back(monitor) do
    case :ets.take(@table, monitor) do
      [{_, {_, _, _, _, _, :exempt}}] -> :exempt
      [{_, {_, _, reference, agent, lane, options}}] -> Native.release(reference, agent, lane, options)
      [] -> {:error, :not_held}
    end
  rescue
    # The NIF was purged and loaded again since, and the limiter is gone.
    ArgumentError -> {:error, :not_held}
  end
end
