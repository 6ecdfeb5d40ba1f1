defmodule Tollgate.Error do
  @moduledoc """
  Why an operator's change was refused. Nothing has changed then.

  `reason` is one of

    * `:unknown_lane`, `:unknown_plan`, `:bad_limit` - the policy does not have it, or it is not valid; the message says
      what there is;
    * `:bad_policy` - the text is no policy; the message has the line and the column;
    * `:not_utf8`, `:text_too_long` - the name of a lane, or a limit;
    * `:too_many_overrides` - 65,000 agents have overrides already;
    * `:same_hash` - another agent with an assignment has the same hash, a chance of 1 in 2^64;
    * `:other_lanes`, `:plan_missing` - a new policy must have the lanes and plans of the old one;
    * `:busy` - another VM that shares the limiter is stopped in the middle of a change: try again;
    * `:shared` - the memory that the limiter shares has no room for the change;
    * `:always_exempt` - the instance was started with this agent in `always_exempt:`;
    * `:store` - the file could not be written, or was edited while it is in use;
    * `:nif` - the native part could not be loaded;
    * `:budgets` - from `Tollgate.Control.save_budgets/1`: the file could not be written, or there is none.
  """

  defexception [:reason, :message]

  @type t :: %__MODULE__{reason: atom, message: String.t()}
end
