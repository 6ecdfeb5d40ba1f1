defmodule Plug.Conn.Unfetched do
  @moduledoc false
  defstruct [:aspect]
end

defmodule Plug.Conn do
  @moduledoc """
  A stand-in for Plug, which no registry brings here: what `Tollgate.Plug` and its kin call, written anew by the
  contract of Plug 1.19. The struct has all fields of the real one, with their defaults; a response that was sent
  refuses changes; names and values of headers are judged as there.
  """

  alias Plug.Conn.Unfetched

  defmodule AlreadySentError do
    @moduledoc false
    defexception message: "the response was already sent"
  end

  defmodule InvalidHeaderError do
    @moduledoc false
    defexception [:message]
  end

  defstruct adapter: {Plug.MissingAdapter, nil},
            assigns: %{},
            body_params: %Unfetched{aspect: :body_params},
            cookies: %Unfetched{aspect: :cookies},
            halted: false,
            host: "www.example.com",
            method: "GET",
            owner: nil,
            params: %Unfetched{aspect: :params},
            path_info: [],
            path_params: %{},
            port: 0,
            private: %{},
            query_params: %Unfetched{aspect: :query_params},
            query_string: "",
            remote_ip: nil,
            req_cookies: %Unfetched{aspect: :cookies},
            req_headers: [],
            request_path: "",
            resp_body: nil,
            resp_cookies: %{},
            resp_headers: [{"cache-control", "max-age=0, private, must-revalidate"}],
            scheme: :http,
            script_name: [],
            secret_key_base: nil,
            state: :unset,
            status: nil

  @type t :: %__MODULE__{}

  @unsent [:unset, :set, :set_chunked, :set_file]

  def assign(%__MODULE__{} = conn, key, value) when is_atom(key), do: put_in(conn.assigns[key], value)

  def get_req_header(%__MODULE__{req_headers: headers}, name) when is_binary(name) do
    for {^name, value} <- headers, do: value
  end

  def put_resp_header(%__MODULE__{state: state}, _name, _value) when state not in @unsent, do: raise(AlreadySentError)

  def put_resp_header(%__MODULE__{} = conn, name, value) when is_binary(name) and is_binary(value) do
    # The real one does so with its adapter for tests.
    if name != String.downcase(name), do: raise(InvalidHeaderError, "header key is not lowercase: #{inspect(name)}")
    if :binary.match(name, [":", "\n", "\r", "\0"]) != :nomatch, do: raise(InvalidHeaderError, "name: #{inspect(name)}")
    if :binary.match(value, ["\n", "\r", "\0"]) != :nomatch, do: raise(InvalidHeaderError, "value: #{inspect(value)}")
    %{conn | resp_headers: List.keystore(conn.resp_headers, name, 0, {name, value})}
  end

  def put_resp_content_type(conn, type, charset \\ "utf-8")
  def put_resp_content_type(conn, type, nil), do: put_resp_header(conn, "content-type", type)

  def put_resp_content_type(conn, type, charset),
    do: put_resp_header(conn, "content-type", "#{type}; charset=#{charset}")

  def send_resp(%__MODULE__{state: state}, _status, _body) when state not in @unsent, do: raise(AlreadySentError)

  def send_resp(%__MODULE__{} = conn, status, body) when status in 100..999 and (is_binary(body) or is_list(body)) do
    if conn.owner, do: send(conn.owner, {:plug_conn, :sent})
    %{conn | state: :sent, status: status, resp_body: IO.iodata_to_binary(body)}
  end

  def send_chunked(%__MODULE__{state: state}, _status) when state not in @unsent, do: raise(AlreadySentError)
  def send_chunked(%__MODULE__{} = conn, status), do: %{conn | state: :chunked, status: status}

  # To the process that stands for the client, as long as it is there.
  def chunk(%__MODULE__{state: :chunked, owner: client} = conn, data) do
    if Process.alive?(client) do
      send(client, {:chunk, IO.iodata_to_binary(data)})
      {:ok, conn}
    else
      {:error, :closed}
    end
  end

  def read_body(conn, options \\ [])
  # A client that stopped sending.
  def read_body(%__MODULE__{adapter: {_, :timeout}}, _options), do: {:error, :timeout}

  def read_body(%__MODULE__{adapter: {_, body}} = conn, options) do
    length = Keyword.get(options, :length, 8_000_000)
    body = body || ""
    rest = byte_size(body) - length

    if rest > 0 do
      {:more, binary_part(body, 0, length), %{conn | adapter: {__MODULE__, binary_part(body, length, rest)}}}
    else
      {:ok, body, %{conn | adapter: {__MODULE__, ""}}}
    end
  end

  def halt(%__MODULE__{} = conn), do: %{conn | halted: true}
end

defmodule Plug do
  @moduledoc "The behaviour."

  @callback init(options :: term) :: term
  @callback call(conn :: Plug.Conn.t(), options :: term) :: Plug.Conn.t()
end
