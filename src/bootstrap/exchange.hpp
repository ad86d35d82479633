// Exchange of JSON objects over a bootstrap: each rank gives one object and gets the objects of all ranks. A bootstrap
// exchanges bytes before ranks have a transport.
//
// A rank that fails before the exchange sends an object with "error" and "code". All ranks throw the error of the
// lowest rank that failed, with the same text, unless the caller collects all objects (OnError::collect).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json_record.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"

namespace collectives {

/// Treatment of a rank that failed before the exchange. With `rethrow`, every rank throws that rank's error. With
/// `collect`, the object of the failed rank is returned like any other.
enum class OnError : std::uint8_t { rethrow, collect };

/// Sends the object `mine` to all ranks. Returns the objects of all ranks, by rank. If a received text is no JSON
/// object, or exceeds kMostRecordBytes or kMostJsonDepth, an object with "error" and "code" takes its place. With
/// OnError::rethrow, throws the error of the lowest failed rank.
std::vector<JsonRecord> exchange(Bootstrap&, const nlohmann::json& mine, Deadline, OnError on_error = OnError::rethrow);

/// Calls exchange() with `mine`, the result of attempt(). If `mine` is an Error{peer_lost}, waits for the other ranks
/// for at most one second, because the lost rank takes no part in the exchange. After that second, throws this
/// Error{peer_lost}.
std::vector<JsonRecord> exchange_result(Bootstrap&, const nlohmann::json& mine, Deadline,
                                        OnError on_error = OnError::rethrow);

/// Converts the text of rank `rank` to an object, in the same way as exchange().
JsonRecord record_of(std::size_t rank, std::string_view text);

/// Returns the error in a record, or the empty text if there is none.
std::string error_in(const JsonRecord&);
/// Returns the code of the error in a record. A number that is no code counts as Errc::bootstrap.
Errc code_in(const JsonRecord&);

/// Returns the result of `work`. If `work` throws, returns an object with "error", "code" and "peer".
nlohmann::json attempt(const std::function<nlohmann::json()>& work);

}  // namespace collectives
