defmodule Tollgate.Case do
  @moduledoc "Tests of an instance of their own, on a clock that they move."

  use ExUnit.CaseTemplate

  using do
    quote do
      import Tollgate.Case
    end
  end

  @doc "Starts an instance for the test and gives its name."
  def start(options \\ []) do
    name = :"limiter#{System.unique_integer([:positive])}"
    start_supervised!({Tollgate, Keyword.merge([name: name, clock: :manual, agents: 1_000, telemetry: :off], options)})
    name
  end

  @doc "Checks this many times, and returns the last answer."
  def drain(name, agent, lane, times) do
    Enum.reduce(1..times, nil, fn _, _ -> Tollgate.check(name, agent, lane) end)
  end

  @doc "Waits until something is so. Ends after 10 s at the latest, and fails then."
  def eventually(so, tries \\ 1_000) do
    cond do
      so.() -> :ok
      tries == 0 -> flunk("it did not come to be")
      true -> Process.sleep(10) && eventually(so, tries - 1)
    end
  end
end
