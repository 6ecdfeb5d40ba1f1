defmodule Tollgate.Error do
  @moduledoc """
  Why an operator's change was refused; nothing has changed then.

  `reason` is one of

    * `:unknown_lane`, `:unknown_plan`, `:bad_limit`: what was given is not one; the message says what there is;
    * `:not_utf8`, `:text_too_long`: of a lane or a limit;
    * `:too_many_overrides`: 65,000 agents have overrides already;
    * `:same_hash`: another agent with an assignment has the same hash, a chance of 1 in 2^64;
    * `:other_lanes`, `:plan_missing`: of a new policy, which must have the lanes and plans of the old one;
    * `:always_exempt`: the instance was started with this agent in `always_exempt:`;
    * `:store`: the file could not be written;
    * `:budgets`: of `Tollgate.save_budgets/0`: the file could not be written, or there is none.
  """

  defexception [:reason, :message]

  @type t :: %__MODULE__{reason: atom, message: String.t()}
end
