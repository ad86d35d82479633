// Exchange of JSON objects over a bootstrap: each rank gives one object and gets the objects of all ranks. A bootstrap
// exchanges bytes before ranks have a transport.
//
// A rank that fails before the exchange sends an object with "error" and "code". All ranks throw the error of the
// lowest such rank, with the same text, unless the caller collects all objects (OnError::collect).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives {

/// Treatment of a rank that failed before the exchange. With `rethrow`, every rank throws that rank's error. With
/// `collect`, the object of the failed rank is returned like any other.
enum class OnError : std::uint8_t { rethrow, collect };

/// Returns the objects of all ranks, by rank. With OnError::rethrow, throws the error of the lowest failed rank.
std::vector<nlohmann::json> exchange(Bootstrap&, const nlohmann::json& mine, Deadline,
                                     OnError on_error = OnError::rethrow);

/// Returns the result of `work`. If `work` throws, returns an object with "error" and "code".
nlohmann::json attempt(const std::function<nlohmann::json()>& work);

}  // namespace collectives
