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

/// Returns the objects of all ranks, by rank. A text that is no JSON object, or that exceeds kMostRecordBytes or
/// kMostJsonDepth, becomes an object with "error" and "code". With OnError::rethrow, throws the error of the lowest
/// failed rank.
std::vector<JsonRecord> exchange(Bootstrap&, const nlohmann::json& mine, Deadline, OnError on_error = OnError::rethrow);

/// Does what exchange() does with the result of attempt(). If this rank knows of a lost rank, waits for the others only
/// for a second, because the lost rank makes no exchange. Then throws this rank's error, Error{peer_lost}.
std::vector<JsonRecord> exchange_result(Bootstrap&, const nlohmann::json& mine, Deadline,
                                        OnError on_error = OnError::rethrow);

/// Returns the object in the text of rank `rank`, as exchange() does.
JsonRecord record_of(std::size_t rank, std::string_view text);

/// Returns the error in a record, or the empty text if there is none.
std::string error_in(const JsonRecord&);
/// Returns the code of the error in a record. A number that is no code counts as Errc::bootstrap.
Errc code_in(const JsonRecord&);

/// Returns the result of `work`. If `work` throws, returns an object with "error", "code" and "peer".
nlohmann::json attempt(const std::function<nlohmann::json()>& work);

}  // namespace collectives
