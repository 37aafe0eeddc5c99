#include "base/shared_library.h"

#include <dlfcn.h>

namespace hearth {

SharedLibrary::SharedLibrary(const std::vector<std::string>& files, Symbols symbols) {
  const int scope = symbols == Symbols::offered ? RTLD_GLOBAL : RTLD_LOCAL;
  for (const std::string& file : files) {
    file_ = file;
    handle_ = dlopen(file.c_str(), RTLD_NOW | scope);
    if (handle_ != nullptr) return;
    const char* const said = dlerror();
    if (fault_.empty() && said != nullptr) fault_ = said;
  }
}

void* SharedLibrary::address(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::filesystem::path file_of(const void* function) {
  Dl_info found;
  return dladdr(function, &found) == 0 ? "" : found.dli_fname;
}

}  // namespace hearth
