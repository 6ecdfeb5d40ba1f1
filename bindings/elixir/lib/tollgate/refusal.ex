defmodule Tollgate.Refusal do
  @moduledoc false
  # The bodies of refusals, in the profiles of the gate: `bindings/gate/src/profile.rs`.
  #
  # | profile | body |
  # |---|---|
  # | `standard` | an RFC 9457 problem with every member below |
  # | `hub` | `{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}` |
  # | `platform` | `{"error":{"code":"RATE_LIMITED","message":"...","retry_after":6}}` |
  # | `adr` | `{"error":"RATE_LIMITED","message":"..."}` |
  # | `citizen` | `{"error":"Rate limit exceeded","message":"...","retry_after":6,"agent_id":"agent-7"}` |

  alias Tollgate.{Headers, JSON}

  @profiles [:standard, :hub, :platform, :adr, :citizen]
  @problem "application/problem+json"
  @types "https://iana.org/assignments/http-problem-types#"

  def profiles, do: @profiles

  # The header style that goes with a profile.
  def style(:standard), do: :draft10
  def style(_), do: :legacy

  def content_type(:standard), do: @problem
  def content_type(_), do: "application/json"

  # The profile that a client asks for with its Accept headers, or else this one.
  def accepted([], profile), do: profile

  def accepted(values, profile) do
    values |> Enum.flat_map(&String.split(&1, ",")) |> Enum.find_value(profile, &requested/1)
  end

  defp requested(range) do
    [kind | parameters] = range |> String.split(";") |> Enum.map(&String.trim/1)
    kind = String.downcase(kind)

    if kind == @problem do
      :standard
    else
      name = Enum.find_value(parameters, fn text -> with "profile=" <> name <- text, do: name, else: (_ -> nil) end)
      kind == "application/json" && name && Enum.find(@profiles, &(Atom.to_string(&1) == String.trim(name, "\"")))
    end
  end

  # The body as text. The most frequent one has little that differs.
  def text(:hub, %{retry_after_ms: ms, lane: %{denial: ending}}, why, _, named: false)
      when is_integer(ms) and is_atom(why) do
    wait = Integer.to_string(Headers.seconds_of_ms(ms) * 1_000)
    <<"{\"error\":\"rate_limited\",\"retry_after_ms\":", wait::binary, ending::binary>>
  end

  def text(profile, quota, why, agent, path), do: profile |> body(quota, why, agent, path) |> JSON.encode()

  # `why` is `:quota`, `:conduct`, `:pending` or `{:cost, cost}`; an agent of nil is not shown.
  def body(:standard, quota, why, agent, path) do
    {type, title} =
      if why == :conduct, do: {"abnormal-usage-detected", "Abnormal usage detected"}, else: quota_exceeded()

    %{name: name} = quota.lane

    problem(@types <> type, title, 429, detail(quota, why), instance: path) ++
      ["violated-policies": [name], policy: name, tier: tier(quota), limit: quota.capacity] ++
      [remaining: quota.remaining, retry_after: Headers.retry_after(quota), retry_after_ms: ms(quota)] ++
      if(agent, do: [agent_id: agent], else: [])
  end

  def body(:hub, quota, why, agent, named: true), do: body(:hub, quota, why, agent, []) ++ [agent_id: agent]

  def body(:hub, quota, why, _agent, _path) do
    wait =
      case {why, quota.retry_after_ms} do
        {{:cost, _}, _} -> nil
        {_, :infinity} -> 60_000
        {_, ms} -> Headers.seconds_of_ms(ms) * 1_000
      end

    [error: "rate_limited", retry_after_ms: wait, tier: tier(quota)]
  end

  def body(:platform, quota, _why, _agent, _path) do
    wait = Headers.retry_after(quota)
    message = "Too many requests." <> if wait, do: " Please retry after #{wait} seconds.", else: ""
    [error: [code: "RATE_LIMITED", message: message, retry_after: wait]]
  end

  def body(:adr, quota, _why, _agent, _path) do
    wait = Headers.retry_after(quota)
    [error: "RATE_LIMITED", message: "Too many requests." <> if(wait, do: " Retry after #{wait} seconds.", else: "")]
  end

  def body(:citizen, quota, _why, agent, _path) do
    [error: "Rate limit exceeded", message: "Too many requests from this agent"] ++
      [retry_after: Headers.retry_after(quota), agent_id: agent]
  end

  # A problem that is no refusal.
  def problem(400, detail), do: problem("about:blank", "Bad Request", 400, detail, [])

  def problem(503, detail),
    do: problem(@types <> "temporary-reduced-capacity", "Service Unavailable", 503, detail, [])

  def problem(status, title, detail, more), do: problem("about:blank", title, status, detail, more)

  defp problem(type, title, status, detail, more) do
    [type: type, title: title, status: status, detail: detail] ++ Enum.filter(more, &elem(&1, 1))
  end

  defp quota_exceeded, do: {"quota-exceeded", "Quota exceeded"}
  defp tier(%{lane: %{name: name}}), do: name |> String.split("/") |> List.last()
  defp ms(%{retry_after_ms: :infinity}), do: nil
  defp ms(%{retry_after_ms: ms}), do: max(1, ms)

  defp detail(quota, why) do
    %{lane: %{name: name}, capacity: capacity, remaining: remaining} = quota

    what =
      case why do
        :quota -> "#{name} has #{remaining} of #{capacity} left, too few for this request."
        {:cost, cost} -> "The request costs #{cost}, and #{name} never holds more than #{capacity}."
        :conduct -> "Too many requests were sent after refusals on #{name}."
        :pending -> "#{name} is shared by machines, and their store has not answered yet."
      end

    case Headers.retry_after(quota) do
      1 -> what <> " Retry after 1 second."
      nil -> what <> " No wait will help."
      seconds -> what <> " Retry after #{seconds} seconds."
    end
  end
end
