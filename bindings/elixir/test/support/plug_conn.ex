defmodule Plug.Conn do
  @moduledoc """
  A stand-in for Plug, which cannot be had without the network: the functions that `Tollgate.Plug` calls, as Plug's
  documentation describes them, with the mistakes that Plug refuses.
  """

  defstruct assigns: %{},
            halted: false,
            remote_ip: {127, 0, 0, 1},
            req_headers: [],
            resp_body: nil,
            resp_headers: [{"cache-control", "max-age=0, private, must-revalidate"}],
            state: :unset,
            status: nil

  @type t :: %__MODULE__{}

  def get_req_header(%__MODULE__{req_headers: headers}, name), do: for({^name, value} <- headers, do: value)

  def put_resp_header(%__MODULE__{state: state}, _name, _value) when state in [:sent, :chunked] do
    raise "the response was sent already"
  end

  def put_resp_header(%__MODULE__{} = conn, name, value) when is_binary(name) and is_binary(value) do
    if name != String.downcase(name), do: raise("#{inspect(name)} is not lower-case")
    if value =~ ~r/[\r\n]/, do: raise("#{inspect(value)} has a line break")
    %{conn | resp_headers: List.keystore(conn.resp_headers, name, 0, {name, value})}
  end

  def put_resp_content_type(%__MODULE__{} = conn, type) do
    put_resp_header(conn, "content-type", type <> "; charset=utf-8")
  end

  def send_resp(%__MODULE__{state: :sent}, _status, _body), do: raise("the response was sent already")

  def send_resp(%__MODULE__{} = conn, status, body) when status in 100..599 and is_binary(body) do
    %{conn | state: :sent, status: status, resp_body: body}
  end

  def halt(%__MODULE__{} = conn), do: %{conn | halted: true}
end
