#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace hearth {

/// A shared library that is opened while the program runs, and stays open.
class SharedLibrary {
 public:
  enum class Symbols : uint8_t {
    own,      ///< are found by find() alone
    offered,  ///< serve every library that is opened later
  };
  /// The first of these files that can be opened, where the system looks for libraries or, for paths, there.
  explicit SharedLibrary(const std::vector<std::string>& files, Symbols symbols = Symbols::own);

  explicit operator bool() const { return handle_ != nullptr; }
  /// Why there is none: what the system said of the first file.
  const std::string& fault() const { return fault_; }
  const std::string& file() const { return file_; }

  /// False where it has no symbol of that name, or is none.
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

/// The file with the function of that address: the program, or a library that it has opened.
std::filesystem::path file_of(const void* function);

}  // namespace hearth
