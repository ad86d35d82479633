// Components: parts of the library that need software which not every machine has, such as UCX or CUDA.
//
// A component is a shared library of the project to which nothing is linked. It is loaded at run time, so one binary
// runs with it and without.
#pragma once

#include <string>

namespace collectives {

/// Returns the directory of the core library, or of the program into which it is linked.
std::string own_directory();

/// A component. It stays loaded once it has been found.
class Component {
 public:
  /// Loads `file` from `directory`, otherwise from the library path of the system. It must have the version of the core
  /// library, which its function `version_symbol` returns.
  Component(const std::string& file, const char* version_symbol, const std::string& directory);

  /// Looks up a function. Returns false if there is none of that name; the component is then unusable.
  template <class F>
  bool find(F*& function, const char* symbol) {
    function = reinterpret_cast<F*>(address(symbol));
    return function != nullptr;
  }
  /// Returns why the component cannot be used, in words; empty if it can.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  void* address(const char* symbol);

  std::string path_, why_not_;
  void* library_ = nullptr;
};

}  // namespace collectives
