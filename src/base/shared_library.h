#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hearth {

/// A shared library that is opened at run time and never closed.
class SharedLibrary {
 public:
  enum class Symbols : uint8_t {
    own,      ///< symbols are visible through find() only (RTLD_LOCAL)
    offered,  ///< symbols are also visible to libraries opened later (RTLD_GLOBAL)
  };
  /// Opens the first of these files that can be opened; a name without a slash is searched for in the
  /// system's library path. operator bool returns true if a file was opened.
  explicit SharedLibrary(const std::vector<std::string>& files, Symbols symbols = Symbols::own);

  explicit operator bool() const { return handle_ != nullptr; }
  /// Error of the dynamic loader for the first file; valid if no file could be opened.
  const std::string& fault() const { return fault_; }
  const std::string& file() const { return file_; }

  /// Stores the address of the function or variable `name` in `symbol`; returns false if the library is not
  /// open or does not define it.
  template <typename T>
  bool find(const char* name, T*& symbol) const {
    symbol = reinterpret_cast<T*>(address(name));
    return symbol != nullptr;
  }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string file_, fault_;
};

/// Returns the path of a module of Hearth, libhearth_NAME.so, in the folder HEARTH_MODULES, or if that is not
/// set, in the program's folder or in ../lib/hearth relative to it; empty if there is none.
std::filesystem::path find_module(const std::string& name);

/// Returns the file that contains the function: the program or a loaded library.
std::filesystem::path file_of(const void* function);

}  // namespace hearth
