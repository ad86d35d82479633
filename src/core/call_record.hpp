// Call record: describes one call of a rank, so that other ranks can compare it with their own calls. A rank keeps
// records of its newest calls.
//
// The running hash of a rank covers all its calls up to a given call. Ranks that have made equal calls have equal
// running hashes. In the first call that differs, the running hashes of two ranks are therefore equal before the call,
// and different after it.
//
// A signature holds the arguments on which ranks must agree. Some arguments are texts or lists, such as the name of a
// tensor, of which the signature holds only a hash. The details of a call hold these texts and lists for error texts.
// Encoded details consist of fields. A field is a letter, two bytes with the length of the value, lowest byte first,
// and the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/types.hpp"
#include "core/signature.hpp"

namespace collectives {

/// Details of one call.
struct CallDetails {
  std::string name = {};                    ///< name of the tensor, or names of a fused group's tensors
  std::string op = {};                      ///< user op: its name in quotation marks
  std::string compression = {};             ///< options of top-k, or lengths of the codec's blocks
  std::string refusal = {};                 ///< reason for which the rank has refused the call
  std::vector<std::uint64_t> lengths = {};  ///< first lengths of the parts, or of a fused group's tensors
  /// Displacements of these parts, if they do not lie one after another.
  std::vector<std::uint64_t> displacements = {};

  bool operator==(const CallDetails&) const = default;
};

/// Letter of a field in encoded details.
enum class Detail : char { name = 'n', op = 'o', compression = 'c', refusal = 'r', lengths = 'l', displacements = 'd' };

/// Maximum number of bytes of a call's encoded details. Longer details are cut.
inline constexpr std::size_t kDetailBytes = 1008;
/// Maximum numbers of bytes of the values of fields. All fields, with their letters and lengths, fit into kDetailBytes.
inline constexpr std::size_t kNameBytes = 320, kOpBytes = 96, kCompressionBytes = 128, kRefusalBytes = 400;
/// Largest number of lengths in encoded details.
inline constexpr std::size_t kDetailLengths = 48;

/// Appends a field, whose value is cut to `at_most` bytes.
void append_detail(std::string& to, Detail kind, std::string_view value, std::size_t at_most);
/// Appends the first kDetailLengths lengths as a field.
void append_lengths(std::string& to, std::span<const std::size_t> lengths);
/// Appends the layout of the parts: their first lengths, and their displacements if there are any. Both fields together
/// hold at most kDetailLengths numbers.
void append_parts(std::string& to, const PartLayout& parts);
/// Returns the details in `bytes`. Ignores fields of unknown letters, and bytes that are no field.
CallDetails decode_details(std::string_view bytes);

/// One call of a rank.
struct CallRecord {
  std::uint64_t sequence = 0;
  RunningHash hash = {};
  Signature signature = {};
  CallDetails details = {};
};

/// Record of a rank's call.
struct Arrived {
  Rank rank = 0;
  CallRecord call = {};
};

/// Returns true if the records are of equal calls, and all calls before were equal, too.
bool agree(const CallRecord&, const CallRecord&) noexcept;

/// Description of a mismatch: the call in which ranks differ, and a text that names it.
struct Mismatch {
  Rank peer = 0;          ///< rank with the rarest arguments
  std::string operation;  ///< "all_reduce #17"
  std::string text;       ///< "all_reduce #17: rank 3 passed 4096 x bf16, ranks 0-2 passed 4095 x bf16"
};
/// Describes how the records of one call differ. The text names only arguments that differ. Requires a record.
/// `unrecorded`: rank that made another call, of which there is no record; or kNoRank.
Mismatch describe_mismatch(const std::vector<Arrived>&, Rank unrecorded = kNoRank);
/// Describes records of one call whose ranks differ in an earlier call without records: "rank 3 and ranks 0-2 differ in
/// a call before #17".
Mismatch describe_earlier_mismatch(const std::vector<Arrived>&);

/// Words of another interface, which error texts of this process then use.
struct Vocabulary {
  /// Returns the name of the function that makes the call: "MPI_Allgatherv".
  std::string_view (*function)(const Signature&) noexcept;
  /// Returns the elements of a call whose foreign type is not 0: "16 x MPI_BYTE", or "parts of MPI_BYTE".
  std::string (*elements)(const Signature&);
};
/// Returns "16 x f32", or "parts of f32" if each rank of the call knows only counts of its own.
std::string elements_text(const Signature& signature, std::uint64_t count, std::string_view type);
/// Sets the words of error texts; null: those of C++. `words` must be valid as long as any communicator.
void set_vocabulary(const Vocabulary* words) noexcept;
/// Returns "all_reduce" or "split".
std::string_view name_of(const Signature& signature) noexcept;
/// Returns "all_reduce #17", or "all_reduce #17 (fc1)" with the name of the tensor.
std::string label_of(const Signature& signature, std::uint64_t sequence, std::string_view name);

}  // namespace collectives
