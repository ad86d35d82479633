// Components: parts of the library that need software which not every machine has, such as UCX or CUDA.
//
// A component is a shared library of the project. No other library or program is linked to it. The core library loads
// components at run time with dlopen. One binary of the core library therefore runs on machines with and without UCX or
// CUDA.
#pragma once

#include <string>

namespace collectives {

/// Returns the directory of the core library, or of the program into which it is linked. Returns an empty string if the
/// directory is unknown.
std::string own_directory();

/// A component, loaded by the constructor. It is never unloaded.
class Component {
 public:
  /// Loads the library `file` from `directory`. If `directory` does not contain it, loads it from the system's library
  /// path. Checks that the component's function `version_symbol` returns the version of the core library. If loading or
  /// the check fails, why_not() returns the reason.
  Component(const std::string& file, const char* version_symbol, const std::string& directory);

  /// Looks up a function of the component. Returns false if the component is unusable. If the component lacks the
  /// function, it becomes unusable.
  template <class F>
  bool find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(address(symbol));
    return function != nullptr;
  }
  /// Returns the reason why the component cannot be used, or an empty text if it can be used.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  void* address(const char* symbol);

  std::string path_, why_not_;
  void* library_ = nullptr;
};

}  // namespace collectives
