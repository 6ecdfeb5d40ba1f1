// A first check from C++17.
//
//     c++ -std=c++17 first_check.cpp $(pkg-config --cflags --libs tollgate) -o first_check
#include <iostream>
#include <tollgate.hpp>

int main()
{
    using namespace std::chrono_literals;
    try {
        tollgate::limiter limiter(tollgate::policy::from_toml("[lanes]\n'http/heavy' = '10/minute burst 3'"));
        const auto heavy = limiter.lane("http/heavy");
        for (int request = 1; request <= 4; request++) {
            const auto verdict = limiter.check("agent-7", heavy);
            if (verdict)
                std::cout << "request " << request << ": 200, " << verdict.remaining() << " left\n";
            else
                std::cout << "request " << request << ": 429, retry after "
                          << tollgate::wait_in(verdict.retry_after(), 1s, 60s).count() << " ms\n";
        }
    } catch (const tollgate::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
