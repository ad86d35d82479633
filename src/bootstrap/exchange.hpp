// An exchange over a bootstrap, of JSON, in which a rank may also say what has gone wrong: then it goes wrong
// everywhere, with the same words.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/error.hpp"

namespace collectives {

/// What becomes of a rank's failure in an exchange: thrown on every rank, or told like everything else.
enum class OnError : std::uint8_t { rethrow, collect };

/// What every rank says. Of failures ("error" and "code") the first one counts.
std::vector<nlohmann::json> exchange(Bootstrap&, const nlohmann::json& mine, Deadline,
                                     OnError on_error = OnError::rethrow);

/// Runs `work`; what it throws becomes part of what is exchanged.
template <class Work>
nlohmann::json attempt(Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    return {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}, {"code", static_cast<int>(Errc::system)}};
  }
}

}  // namespace collectives
