// Calls that differ from one another in one argument or more. Tests let some ranks make one of them, and the other
// ranks another one.
//
// A DifferentCall is a value. CallMaker makes the call by one of four interfaces: blocking, asynchronous, by a Group or
// by the C interface.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "c_interface/handles.hpp"
#include "collectives/collectives.hpp"

namespace collectives::testing {

enum class Interface { blocking, async, group, c };
inline constexpr Interface kInterfaces[] = {Interface::blocking, Interface::async, Interface::group, Interface::c};
std::string_view to_string(Interface) noexcept;

struct DifferentCall {
  enum class Kind {
    whole,      ///< a collective whose parts are equal
    parts,      ///< a collective with a count for each rank
    group,      ///< a group of several tensors
    split,      ///< a split into one communicator
    bad_count,  ///< a call whose output has one element too few
    bad_root    ///< a call whose root is no rank
  };
  std::string_view title;
  Kind kind = Kind::whole;
  Collective collective = Collective::all_reduce;
  std::size_t count = 12;  ///< elements of the whole vector; a multiple of 2, 3 and 4
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::string_view name = {};
  std::string_view codec = {};
  std::size_t k = 0;  ///< elements that top-k sends; 0: no top-k
  bool deterministic = false;
  bool falling = false;                      ///< parts: ranks have falling counts, otherwise rising ones
  std::vector<std::size_t> tensors = {};     ///< group: lengths
  std::vector<std::string_view> names = {};  ///< group: names of the tensors

  /// Returns whether the library refuses the call on the rank that makes it.
  bool is_bad() const noexcept { return kind == Kind::bad_count || kind == Kind::bad_root; }
  /// Returns the name of the operation, as errors contain it.
  std::string_view verb() const noexcept { return kind == Kind::split ? "split" : to_string(collective); }
};

/// Returns the calls. Any two of them differ in something that all ranks must agree on.
const std::vector<DifferentCall>& different_calls();

/// Makes calls on one communicator by one interface. Owns the communicator and the memory of the calls.
class CallMaker {
 public:
  CallMaker(Communicator comm, Interface interface);
  ~CallMaker();
  /// Makes the call and blocks until it has ended. Throws its Error.
  void make(const DifferentCall& call);
  /// Makes a barrier by the same interface.
  void barrier();
  Communicator& comm() { return handle_.comm; }

 private:
  struct Arguments;
  Arguments arguments_of(const DifferentCall& call);
  void make_blocking(const DifferentCall& call, const Arguments& with);
  Work begin(const DifferentCall& call, const Arguments& with);
  void make_group(const DifferentCall& call, const Arguments& with);
  void make_in_c(const DifferentCall& call, const Arguments& with);
  void make_group_in_c(const DifferentCall& call, const collectives_options& options);

  collectives_communicator handle_;
  Interface interface_;
  std::vector<double> input_, output_;
  std::unique_ptr<collectives_top_k> top_k_;
};

}  // namespace collectives::testing
