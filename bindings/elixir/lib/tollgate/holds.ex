defmodule Tollgate.Holds do
  @moduledoc false
  # Slots that belong to processes: `Tollgate.hold/3`. One process for all
  # instances takes the slots, watches who they belong to and gives them back
  # when those end. It takes the slot itself, so that nobody can end between
  # taking one and being watched.
  #
  # What it knows is in a table of the application's, so that it survives: if it
  # crashes, its successor watches the same processes, and is told at once of
  # those that have ended meanwhile.

  use GenServer

  alias Tollgate.{Instance, Native}

  @table __MODULE__

  # Called by the application itself, whose process then owns the table.
  def make_table, do: :ets.new(@table, [:named_table, :public, :set])

  def start_link(_), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  def hold(instance, agent, lane, owner) do
    {reference, _} = Instance.find(instance)
    call({:hold, instance, reference, agent, lane, owner})
  end

  def let_go(instance, agent, lane, owner), do: call({:let_go, instance, agent, lane, owner})

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
  def handle_call({:hold, instance, reference, agent, lane, owner}, _from, state) do
    case Native.acquire(reference, agent, lane) do
      {decision, left} = verdict when decision in [:allow, :warn] ->
        # An exempt agent takes no slot, and has none to give back.
        watch({owner, instance, reference, agent, lane, left != :exempt})
        {:reply, verdict, state}

      answer ->
        {:reply, answer, state}
    end
  rescue
    error in ArgumentError -> {:reply, {:raise, error}, state}
  end

  def handle_call({:let_go, instance, agent, lane, owner}, _from, state) do
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

  # Out of the table first: a slot that is given back twice would be somebody else's.
  defp give_back(monitor) do
    case :ets.take(@table, monitor) do
      [{_, {_, _, reference, agent, lane, true}}] -> Native.release(reference, agent, lane)
      [{_, {_, _, _, _, _, false}}] -> :exempt
      [] -> {:error, :not_held}
    end
  rescue
    # The NIF was purged and loaded again since, and the limiter is gone.
    ArgumentError -> {:error, :not_held}
  end
end
