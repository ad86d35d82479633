// Parts of the library that need what not every machine has: shared libraries of the project that nobody links, found
// at run time, so that one binary runs with them and without.
#pragma once

#include <string>

namespace collectives {

/// Where the core library, or the program it is linked into, lies.
std::string own_directory();

/// A part that has been found, and stays loaded.
class Component {
 public:
  /// `file`: looked for in `directory`, then where the system keeps libraries. Must be of the core's version, which it
  /// tells by the function `version_symbol`.
  Component(const std::string& file, const char* version_symbol, const std::string& directory);

  /// Fills in a function; false, and nothing is usable, where there is none of that name.
  template <class F>
  bool find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(address(symbol));
    return function != nullptr;
  }
  /// Why it cannot be used, in words; empty where it can.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  void* address(const char* symbol);

  std::string path_, why_not_;
  void* library_ = nullptr;
};

}  // namespace collectives
