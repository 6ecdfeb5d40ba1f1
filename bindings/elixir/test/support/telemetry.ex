defmodule :telemetry do
  @moduledoc "A stand-in for `:telemetry`, which cannot be had without the network: an event goes to the attached handlers."

  def attach(id, event, function, config) do
    :persistent_term.put({__MODULE__, event}, [{id, function, config} | handlers(event)])
    :ok
  end

  def execute(event, measurements, metadata) when is_list(event) and is_map(measurements) and is_map(metadata) do
    for {_id, function, config} <- handlers(event), do: function.(event, measurements, metadata, config)
    :ok
  end

  defp handlers(event), do: :persistent_term.get({__MODULE__, event}, [])
end
